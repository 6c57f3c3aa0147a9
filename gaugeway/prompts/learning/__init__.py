"""Prompt templates learned from traffic: the text an app's requests share is its prompt, the rest are its slots.

Pure and bounded; runs in the sampler process. `frame_of` returns the texts of a request that are compared,
`Learner.find` matches a frame with the learned templates, `Learner.observe` learns from it; `LearnedCapture` does both.
Only salted hashes of requests are kept; the constant texts of a template are taken from the request that completes the
evidence for it.
"""
