"""Several networks that answer together: chosen by NESBS or by simpler means, trained, measured, saved as one."""
