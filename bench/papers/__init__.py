# SPDX-License-Identifier: Apache-2.0
"""What `viaduct papers` executes: the experiments of five papers, and their page."""
