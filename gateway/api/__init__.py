"""The gateway's own routes: health, feedback, and their OpenAPI document."""
