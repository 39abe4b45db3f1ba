#include "trainer/train/remedies.h"

#include <algorithm>
#include <iterator>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

constexpr size_t kMost = 3;
constexpr int kMostNodes = 64;

std::string Human(int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

bool Fits(int64_t needs, const MemoryBudget& budget) { return static_cast<uint64_t>(needs) <= budget.bytes; }

// Everything that could be changed, the cheapest first.
class Candidates {
 public:
  Candidates(const Footprint& footprint, const MemoryBudget& budget)
      : as_is_(footprint), budget_(budget), needs_(footprint.Needs(budget)) {}

  std::vector<Remedy> All() {
    SharedOut("parallel.stage: zero1", ZeroStage::kZero1, Reduce::kLast);
    FewerRanks();
    SharedOut("parallel.stage: zero2, parallel.reduce: every", ZeroStage::kZero2, Reduce::kEvery);
    SharedOut("parallel.stage: zero3", ZeroStage::kZero3, Reduce::kEvery);
    if (as_is_.shape.precision == Precision::kFp32) {
      Footprint half = as_is_;
      half.shape.precision = Precision::kBf16;
      Add("precision.compute: bf16", half.Needs(budget_));
    }
    MoreNodes();
    SmallerModel();
    found_.push_back(
        {Format("%s of %s", budget_.of_one_rank ? "a GPU with free memory" : "a memory limit", Human(needs_).c_str()),
         needs_, 0, true});
    return std::move(found_);
  }

 private:
  void Add(const std::string& change, int64_t needs) {
    if (needs < needs_) found_.push_back({change, needs, needs_ - needs, Fits(needs, budget_)});
  }

  void SharedOut(const char* change, ZeroStage stage, Reduce reduce) {
    if (as_is_.shape.world == 1) return;
    Footprint shared = as_is_;
    shared.shape.stage = stage;
    shared.shape.reduce = reduce;
    Add(change, shared.Needs(budget_));
  }

  // Of ranks that share one memory: the largest number that fits, else one.
  void FewerRanks() {
    if (budget_.of_one_rank) return;
    for (int ranks = as_is_.ranks_here - 1; ranks >= 1; --ranks) {
      Footprint fewer = as_is_;
      fewer.ranks_here = ranks;
      fewer.shape.world = as_is_.shape.world / as_is_.ranks_here * ranks;
      const int64_t needs = fewer.Needs(budget_);
      if (ranks > 1 && !Fits(needs, budget_)) continue;
      return Add(Format("--nproc %d", ranks), needs);
    }
  }

  void MoreNodes() {
    for (int times = 2; times <= kMostNodes; times *= 2) {
      Footprint spread = as_is_;
      spread.shape.world *= times;
      spread.shape.stage = ZeroStage::kZero3;
      spread.shape.reduce = Reduce::kEvery;
      const int64_t needs = spread.Needs(budget_);
      if (!Fits(needs, budget_) && times < kMostNodes) continue;
      return Add(Format("parallel.stage: zero3 on %d times the nodes", times), needs);
    }
  }

  // What a model takes is nearly in proportion to its parameters.
  void SmallerModel() {
    const double share = static_cast<double>(budget_.bytes) / static_cast<double>(needs_);
    const double parameters = share * static_cast<double>(as_is_.model.num_parameters());
    if (share < 1)
      Add(Format("a smaller model, of about %.2g parameters", parameters), static_cast<int64_t>(budget_.bytes));
  }

  const Footprint& as_is_;
  const MemoryBudget& budget_;
  const int64_t needs_;
  std::vector<Remedy> found_;
};

}  // namespace

MemoryBudget BudgetOf(const Hardware& hardware) {
  if (hardware.gpus.empty()) return {hardware.memory.bytes, hardware.memory.source, false};
  const auto left = [](const Gpu& gpu) { return gpu.free_bytes.value_or(gpu.total_bytes); };
  const Gpu& least = *std::ranges::min_element(hardware.gpus, {}, left);
  return {
      left(least),
      (least.free_bytes ? "free memory of the " : "memory, of which the driver does not say what is free, of the ") +
          least.name,
      true};
}

int64_t Footprint::Needs(const MemoryBudget& budget) const {
  const std::vector<PlannedMoment> moments = PlanMoments(model, shape, stages);
  return Largest(moments, budget.of_one_rank).bytes(budget.of_one_rank) * (budget.of_one_rank ? 1 : ranks_here);
}

std::vector<Remedy> Remedies(const Footprint& footprint, const MemoryBudget& budget) {
  std::vector<Remedy> all = Candidates(footprint, budget).All();
  const auto short_of = std::stable_partition(all.begin(), all.end(), [](const Remedy& r) { return r.fits; });
  std::sort(short_of, all.end(), [](const Remedy& a, const Remedy& b) { return a.saves > b.saves; });
  if (all.size() > kMost) all.erase(std::next(all.begin(), kMost), all.end());
  return all;
}

std::string Describe(std::span<const Remedy> remedies) {
  std::vector<std::string> parts;
  for (const Remedy& remedy : remedies) {
    parts.push_back(remedy.saves == 0
                        ? remedy.change
                        : Format("%s (needs %s, saves %s%s)", remedy.change.c_str(), Human(remedy.needs).c_str(),
                                 Human(remedy.saves).c_str(), remedy.fits ? "" : ", which is not enough"));
  }
  return Join(parts, "; ");
}

void RequireMemory(const Footprint& footprint, const MemoryBudget& budget) {
  const int64_t needs = footprint.Needs(budget);
  if (Fits(needs, budget)) return;
  const std::vector<PlannedMoment> moments = PlanMoments(footprint.model, footprint.shape, footprint.stages);
  const std::string moment = NameOf(Largest(moments, budget.of_one_rank), footprint.stages);
  const int ranks = budget.of_one_rank ? 1 : footprint.ranks_here;
  throw OutOfMemoryError(
      Format("model: %lld parameters need %s%s (%d rank%s here, activations not counted), and %s is %s; the cheapest "
             "remedies: %s",
             static_cast<long long>(footprint.model.num_parameters()), Human(needs).c_str(),
             moment.empty() ? "" : (" in the " + moment).c_str(), ranks, ranks == 1 ? "" : "s", budget.source.c_str(),
             HumanBytes(static_cast<double>(budget.bytes)).c_str(), Describe(Remedies(footprint, budget)).c_str()));
}

}  // namespace trainyard
