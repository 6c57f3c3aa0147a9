# syntax=docker/dockerfile:1
# Any base with Python 3.11: `benchmarks/deploying/image.py` builds on Debian.
ARG BASE=docker.io/library/python:3.11-slim
FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/gaugeway
COPY pyproject.toml README.md LICENSE requirements.lock ./
# What is not in the lock, or not what it was when the lock was written, is not installed.
RUN /opt/gaugeway/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements.lock
COPY gaugeway gaugeway
COPY gateway gateway
COPY monitors monitors
COPY dashboards dashboards
RUN /opt/gaugeway/bin/pip install --no-cache-dir --no-deps .

FROM ${BASE}
RUN useradd --system --uid 10001 --home-dir /data gaugeway \
 && install -d -o gaugeway -g gaugeway -m 0700 /data
COPY --from=build /opt/gaugeway /opt/gaugeway
ENV PATH=/opt/gaugeway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GAUGEWAY_HOST=0.0.0.0 \
    GAUGEWAY_PORT=8080 \
    GAUGEWAY_DATA_DIR=/data
# By number, so that an orchestrator can see that it is not root. Nothing but /data and /tmp is written to.
USER 10001
WORKDIR /data
VOLUME /data
# The page (9465) is reachable with GAUGEWAY_MONITORS_HOST=0.0.0.0 and a GAUGEWAY_MONITORS_TOKEN; without a token the
# admin ports (9464, 9465) stay on loopback.
EXPOSE 8080 9465
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
ENTRYPOINT ["gaugeway"]
CMD ["serve"]
