# SPDX-License-Identifier: Apache-2.0
"""How a total is shared among those who ask: one algorithm a file, all behind contract.py.

A new algorithm is a new file and a row here; the table of tests (tests/policy/test_sharing.py) then
covers it.
"""

from penstock.policy.sharing import drf, maxmin, priority, proportional, static, timetable
from penstock.policy.sharing.contract import Algorithm

ALGORITHMS: dict[str, Algorithm] = {
    module.NAME: Algorithm(module.NAME, module.LAWS, module.decide)
    for module in (static, timetable, priority, proportional, maxmin, drf)
}
