"""`gaugeway demo`: a scripted model, a small RAG app over shipped documents, an injected regression and its alert."""
