"""Shared parts of the judged metrics: prompts, answers, claims."""
