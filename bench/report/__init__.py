# SPDX-License-Identifier: Apache-2.0
"""Plots and one page of what `viaduct bench` has measured."""
