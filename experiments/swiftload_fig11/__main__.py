# SPDX-License-Identifier: Apache-2.0
"""SwiftLoad's figure 11: what building a catalog at run time costs a program that hashes content and writes files, by
the size of the files.

On the emulated Lustre with its model on; a share of the published 400,000 files, said in the figure.
"""

import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.capture import bed
from benchmarks.frame import interleave, over
from experiments import frame
from experiments.swiftload_fig11 import figure

HERE = Path(__file__).parent


def measured(config: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    with bed() as it:
        for kib, count in zip(config["sizes_kib"], config["files"], strict=True):
            got = interleave(
                {
                    captured: lambda kib=kib, count=count, captured=captured: it.seconds(
                        kib << 10, count, captured
                    )
                    for captured in (False, True)
                },
                config["rounds"],
                f"swiftload-fig11, {kib} KiB",
            )
            ratio = over(got[True], got[False])
            found.append(
                {
                    "kib": kib,
                    "files": count,
                    "without_s": statistics.median(got[False]),
                    "with_s": statistics.median(got[True]),
                    "ratio": statistics.median(ratio),
                    "ratios": ratio,
                }
            )
    return found


def main() -> int:
    config, output = frame.words(HERE, __doc__ or "")
    found = measured(config)
    frame.keep(output / "numbers.json", {"emulated": True, "config": config, "sizes": found})
    figure.draw(found, output)
    for row in found:
        print(f"{row['kib']:6} KiB  {row['files']:6} files  x {row['ratio']:.3f}")
    print(f"emulated; drawn: {output / 'swiftload-fig11.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
