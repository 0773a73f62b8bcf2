# SPDX-License-Identifier: Apache-2.0
"""Where new files go: allocators behind contract.py, plans, and the ledger of promises.

A new allocator is a new file and a row here; the table of tests (tests/policy/test_placing.py) covers it then.
"""

from penstock.policy.placing import choices, finish, iez, stock
from penstock.policy.placing.contract import Allocator

ALLOCATORS: dict[str, Allocator] = {
    a.name: a for a in (finish.FINISH, stock.STOCK, iez.LITERAL, iez.RENEWED, choices.TWO_CHOICES)
}
