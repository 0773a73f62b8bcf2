# SPDX-License-Identifier: Apache-2.0
"""Every error a user can meet: one sentence that says what, where, and what to do.

PenstockError                exit status 1
 * UsageError                2   the words typed, a setting, a policy
 * IncompleteError           3   done, but not all of it
 * NothingMatchedError       4   only where the caller asked for it to be an error
 * NoControllerError         10
 * BusyError                 11  a lock or lease is held
 * DeniedError               12  permission
 * VersionError              13  written by another version
 * TimeoutError_             124
"""


class PenstockError(Exception):
    """A sentence for the user; `status` is the exit status of the command."""

    status = 1


class UsageError(PenstockError):
    status = 2


class IncompleteError(PenstockError):
    status = 3


class NothingMatchedError(PenstockError):
    status = 4


class NoControllerError(PenstockError):
    status = 10


class BusyError(PenstockError):
    status = 11


class DeniedError(PenstockError):
    status = 12


class VersionError(PenstockError):
    status = 13


class TimeoutError_(PenstockError):
    status = 124
