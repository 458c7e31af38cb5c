"""Any stream of OpenAI-style chat chunks, and the steps beside it, as one valid AG-UI run."""
