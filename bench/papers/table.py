# SPDX-License-Identifier: Apache-2.0
"""Every experiment of the five papers, in their order."""
from . import scilan, shah, sovia, vmmc2, wsdlite

ROWS = sovia.ROWS + vmmc2.ROWS + shah.ROWS + wsdlite.ROWS + scilan.ROWS
