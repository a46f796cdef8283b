"""What engines of llama.cpp are forked with."""

from support import forks

forks.set_forkserver_preload(["kvlease.llama"])
