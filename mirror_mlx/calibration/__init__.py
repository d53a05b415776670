"""What both devices take, measured once for a pair on a machine and kept."""

from mirror_mlx.calibration.measuring import Found, Report, Wanted, measure

__all__ = ["Found", "Report", "Wanted", "measure"]
