"""Ensembles: networks chosen by NESBS or baselines, trained, measured and saved as one model."""
