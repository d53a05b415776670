"""Is all well on this machine? Each part finds out about one thing and reports; none changes anything."""

from mirror_mlx.doctor.examine import Settings, examine
from mirror_mlx.doctor.finding import Finding

__all__ = ["Finding", "Settings", "examine"]
