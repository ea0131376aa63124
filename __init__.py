"""Afterpass."""
