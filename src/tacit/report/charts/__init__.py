"""The figures, as Vega-Lite specifications made by Altair."""
