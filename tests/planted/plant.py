"""Do the tests catch these faults? Each is planted alone in a worktree beside this tree, what it touches is built there, and
the tests that should catch it have to fail; without a fault they have to pass.

usage: plant.py [NAME ...]

Names of faults, all of them when none is given. The compiler's cache makes a build of the rest quick; all of them
take some minutes of two cores. Exit code 1 when a fault was not caught, or a test fails without any.
"""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OPTIONS = ("tests/integration/test_options.py", "trainyard", "slow_copy")


@dataclasses.dataclass(frozen=True)
class Fault:
    """`old` stands once in `file`. `test` is what catches it: a program's name and its filter, or a Python file and its -k."""

    name: str
    file: str
    old: str
    new: str
    test: tuple
    only: str


def restored(name, old, new=""):
    """The state that one of the evaluations' decisions goes on with after a resume."""
    return Fault(f"{name}-not-restored", "trainer/train/train_state.cc", old, new, OPTIONS, "test_what_evaluations_decided_survives_interruptions")


FAULTS = (
    Fault("no-wait-for-the-copy", "trainer/train/step.cc", "    writer->WaitCopied();\n", "", OPTIONS,
          "test_the_optimizer_waits_for_the_checkpoints_copy"),
    # The place among all samples that were ever trained has the step in it, too.
    Fault("step-left-out-of-the-key", "trainer/train/step.cc",
          "static_cast<uint64_t>(step),\n                                   static_cast<uint64_t>(step * plan_.global_batch + place)",
          "uint64_t{0}, static_cast<uint64_t>(place)", ("train_test",), "Step.AKeyIsThatOfItsStepAndItsPlaceInTheGlobalBatch"),
    Fault("place-left-out-of-the-key", "trainer/train/step.cc", "static_cast<uint64_t>(step * plan_.global_batch + place)",
          "static_cast<uint64_t>(step * plan_.global_batch + 0 * place)", ("train_test",), "Step.AKeyIsThatOfItsStepAndItsPlaceInTheGlobalBatch"),
    Fault("layer-left-out-of-the-key", "trainer/model/pass.h", "HashKey(key_, place.index)", "HashKey(key_, 0 * place.index)", ("model_test",),
          "Layers.TwoPlacesDrawDifferently"),
    Fault("scratch-made-static", "trainer/kernels/attention_impl.h", "thread_local HeadScratch scratch", "static HeadScratch scratch", ("model_test",),
          "Threads.Attention"),
    restored("plateau", '  state.plateau = {FromExact(plateau, "multiplier"), FromExact(plateau, "best"), Count(plateau, "bad")};\n',
             "  static_cast<void>(plateau);\n"),
    restored("early-stop", '  state.early_stop = {FromExact(early_stop, "best"), Count(early_stop, "bad")};\n', "  static_cast<void>(early_stop);\n"),
    restored("best", '  state.best = FromExact(json, "best");\n'),
    Fault("no-fsync-of-a-file", "trainer/base/file.cc", '  if (fsync(fd_) != 0) Fail("sync", path_, errno);\n', "", ("power_loss_test",), "PowerLossTest.*"),
    Fault("no-fsync-of-a-folder", "trainer/base/file.cc", "const int result = fsync(fd);", "const int result = 0;", ("power_loss_test",), "PowerLossTest.*"),
    # Of the engine: what stages, offload and averages have to get right.
    Fault("bucket-overwritten-in-flight", "trainer/parallel/reduce_every.cc", "opened_ < retired_ + kSlots", "opened_ <= sent_", ("parallel_test",),
          "Zero.GradientsThatAreSharedOutMakeTheSameBitsAmongThemselves"),
    Fault("norm-before-the-last-bucket", "trainer/parallel/reduce_last.cc", "while (retired_ < buckets_.size())", "while (retired_ + 1 < buckets_.size())",
          ("parallel_test",), "Zero.GradientsSentInBfloat16MakeTheSameBitsInEveryStage"),
    Fault("shard-off-by-a-block", "trainer/parallel/flat_layout.cc", "{bucket.begin + shard * rank, bucket.begin + shard * (rank + 1)}",
          "{bucket.begin + shard * rank + (rank > 0 ? kBlock : 0), bucket.begin + shard * (rank + 1) + (rank + 1 < world_ ? kBlock : 0)}", ("parallel_test",),
          "Zero.EveryStageMakesTheSameBits"),
    Fault("unit-released-before-its-backward", "trainer/parallel/gathered_units.cc", "  Enter();\n}\n\nvoid GatheredUnits::Issue",
          "  Enter();\n  if (!schedule_->at(place).is_gather) state_.units()->Unbind(schedule_->at(place).unit());\n}\n\nvoid GatheredUnits::Issue",
          ("parallel_test",), "Zero.EveryStageMakesTheSameBits"),
    Fault("tile-skipped", "trainer/parallel/offloaded_update.cc", "    optimizer.Step(HostMath()", "    if (k != 1) optimizer.Step(HostMath()", ("parallel_test",),
          "Zero.AnOffloadedOptimizerChangesNoBit"),
    Fault("average-of-another-range", "trainer/parallel/flat_state.cc", "floats(MomentsOf(average, piece))", "floats(average)", ("parallel_test",),
          "Zero.EveryStageMakesTheSameBits"),
)


def run(*command, tree, **options):
    return subprocess.run(command, cwd=tree, text=True, **options)


def build(tree, targets):
    built = run("cmake", "--build", "--preset", "release", "--target", *targets, tree=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if built.returncode != 0:
        sys.exit(f"it does not compile:\n{built.stdout[-4000:]}")


def passes(tree, fault):
    """Whether the test is content with what is built in `tree`."""
    name, *needs = fault.test
    if not name.endswith(".py"):
        build(tree, [name])
        try:
            return run(f"build/release/bin/{name}", f"--gtest_filter={fault.only}", tree=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=600).returncode == 0
        except subprocess.TimeoutExpired:
            return False
    build(tree, needs)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRAINYARD_")}
    environment["TRAINYARD_SLOW_COPY"] = str(tree / "build/release/lib/libslow_copy.so")
    result = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name, "-k", fault.only, tree=tree, env=environment,
                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
    if result.returncode not in (0, 1):  # 1 is a test that failed; others mean that none ran
        sys.exit(f"pytest ended with {result.returncode}:\n{result.stdout[-4000:]}")
    return result.returncode == 0


@contextlib.contextmanager
def planted(tree, fault):
    path = tree / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        sys.exit(f"{fault.name}: {fault.file} has its line {text.count(fault.old)} times, not once")
    path.write_text(text.replace(fault.old, fault.new))
    try:
        yield
    finally:
        path.write_text(text)


@contextlib.contextmanager
def worktree():
    """HEAD, in a folder beside this one: at the same depth, so that the compiler's cache knows its files."""
    tree = ROOT.with_name(ROOT.name + "-planted")
    subprocess.run(["git", "worktree", "add", "--detach", str(tree)], cwd=ROOT, check=True, capture_output=True)
    try:
        subprocess.run(["cmake", "--preset", "release"], cwd=tree, check=True, capture_output=True)
        yield tree
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True, capture_output=True)


def main():
    names = {fault.name for fault in FAULTS}
    if unknown := [name for name in sys.argv[1:] if name not in names]:
        sys.exit(f"{unknown[0]}: the faults are {', '.join(sorted(names))}")
    chosen = [fault for fault in FAULTS if not sys.argv[1:] or fault.name in sys.argv[1:]]
    bad = 0
    with worktree() as tree:
        for test, only in dict.fromkeys((fault.test, fault.only) for fault in chosen):
            content = passes(tree, Fault("none", "", "", "", test, only))
            bad += not content
            print(f"{'passes' if content else 'FAILS'} without a fault: {test[0]} {only}", flush=True)
        for fault in chosen:
            with planted(tree, fault):
                caught = not passes(tree, fault)
            bad += not caught
            print(f"{'caught' if caught else 'NOT CAUGHT'}: {fault.name}, by {fault.test[0]} {fault.only}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
