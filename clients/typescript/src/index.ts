import createFetchClient, { type Client as FetchClient, type Middleware } from "openapi-fetch";
import type { paths } from "./schema.js";

export type { components, operations, paths } from "./schema.js";

export interface Options {
  /** The monitors' port. */
  url?: string;
  /** The token of the page, `monitors.token`. */
  token?: string;
  /** Milliseconds that a request may take; a request's own `signal` may end it sooner. */
  timeoutMs?: number;
  fetch?: typeof globalThis.fetch;
}

export type Client = FetchClient<paths>;

/** A response that is an error; `field` names the parameter that is wrong, where one is. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly field?: string,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** A client whose paths, parameters and answers are typed from the OpenAPI document. Errors are thrown as ApiError. */
export function createClient(options: Options = {}): Client {
  const { url = "http://127.0.0.1:9465", token, timeoutMs = 30_000, fetch = globalThis.fetch } = options;
  // Checked here, as the error of the headers would repeat it.
  if (token && !/^[\x20-\x7e]*$/.test(token)) throw new TypeError("token: has characters that no header may have");
  const limited = (request: Request) =>
    fetch(request, { signal: AbortSignal.any([request.signal, AbortSignal.timeout(timeoutMs)]), redirect: "error" });
  const client = createFetchClient<paths>({ baseUrl: url, fetch: limited });
  const middleware: Middleware = {
    onRequest({ request, params }) {
      for (const [name, value] of Object.entries(params.path ?? {})) {
        const text = String(value);
        // Such a segment would vanish from the address, which then is that of another operation.
        if (["", ".", ".."].includes(text)) throw new TypeError(`${name}: expected a name, got ${JSON.stringify(text)}`);
      }
      if (token) request.headers.set("authorization", `Bearer ${token}`);
      return request;
    },
    async onResponse({ response }) {
      if (response.ok) return;
      const text = await response.text();
      throw refused(text, response.status);
    },
  };
  client.use(middleware);
  return client;
}

function refused(text: string, status: number): ApiError {
  let detail: unknown;
  try {
    detail = JSON.parse(text).detail;
  } catch {
    detail = undefined;
  }
  if (typeof detail !== "string") return new ApiError(`the answer (status ${status}) is not Gaugeway's: see the URL`, status);
  return new ApiError(detail, status, /^([A-Za-z_][\w.[\]]*): /.exec(detail)?.[1]);
}
