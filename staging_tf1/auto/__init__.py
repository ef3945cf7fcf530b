"""Finds which ops of a graph can run ahead of the step, and makes them do so."""
