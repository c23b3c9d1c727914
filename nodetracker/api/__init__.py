"""The REST service: Nova's, Zun's and its own resources over HTTP."""
