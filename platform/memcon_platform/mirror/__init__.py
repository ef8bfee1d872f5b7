"""A run's folder and its copy under a prefix of an object store: `publish` there, `fetch_run` back.

`manifest.json` under the prefix is the run's table of contents: what it does not name, nobody reads. It is put last and
on the condition that nobody else has put one meanwhile; its `generation` grows by 1 with each.
"""

from memcon_platform.mirror.fetching import fetch_run
from memcon_platform.mirror.manifest import MANIFEST_KEY, Manifest, read_manifest
from memcon_platform.mirror.publishing import publish
from memcon_platform.mirror.synced import unpublished

__all__ = [
    "MANIFEST_KEY",
    "Manifest",
    "fetch_run",
    "publish",
    "read_manifest",
    "unpublished",
]
