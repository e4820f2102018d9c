# SPDX-License-Identifier: Apache-2.0
"""The programs of bench/apps.py, and the rig that runs them."""
