#include "trainer/selftest/group.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/json.h"
#include "trainer/base/clock.h"
#include "trainer/base/error.h"
#include "trainer/base/listen.h"
#include "trainer/base/text.h"
#include "trainer/comm/c10d_store.h"
#include "trainer/comm/gloo.h"
#include "trainer/model/math_functions.h"
#include "trainer/selftest/equality.h"
#include "trainer/selftest/processes.h"

namespace trainyard::selftest {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kDeadline(30);
constexpr size_t kNumbers = 1 << 20;
constexpr int64_t kBytes = 8 << 20;  // of a collective whose rate is measured
constexpr int kRepeats = 3;

// Each sum must be what can be said beforehand, to the bit.
void Exchange(Communicator& group) {
  const int rank = group.rank(), size = group.size();
  std::vector<double> values(kNumbers);
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>((rank + 1) * (i + repeat));
    group.AllReduceNow(values, "selftest");
    const int factor = size * (size + 1) / 2;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] != static_cast<double>(factor * (i + repeat)))
        throw Error(ExitCode::kInternal, Format("a sum was wrong: number %zu of %zu", i, kNumbers));
    }
  }
  const std::vector<int64_t> mine(static_cast<size_t>(rank) + 1, rank + 7);
  std::vector<int64_t> expected;
  for (int r = 0; r < size; ++r) expected.insert(expected.end(), static_cast<size_t>(r) + 1, r + 7);
  if (group.AllGatherNow(mine, "selftest") != expected)
    throw Error(ExitCode::kInternal, "numbers that were gathered are not what was sent");
}

// Bytes of the whole tensor a second, of each collective.
Json Rates(Communicator& group) {
  const int64_t part = kBytes / 4 / 64 / group.size() * 64, whole = part * group.size();
  at::Tensor all = at::zeros({whole}), mine = at::zeros({part});
  const std::pair<const char*, std::function<Communicator::Ticket()>> collectives[] = {
      {"all_reduce", [&] { return group.AllReduce(all, "selftest"); }},
      {"reduce_scatter", [&] { return group.ReduceScatter(all, mine, "selftest"); }},
      {"all_gather", [&] { return group.AllGather(mine, all, "selftest"); }},
      {"broadcast", [&] { return group.Broadcast(all, 0, "selftest"); }}};
  Json rates = Json::object();
  for (const auto& [name, begin] : collectives) {
    group.Wait(begin());  // buffers are made
    group.Barrier("selftest");
    const double start = SteadySeconds();
    for (int repeat = 0; repeat < kRepeats; ++repeat) group.Wait(begin());
    group.Barrier("selftest");
    rates[name] = static_cast<double>(whole) * 4 * kRepeats / (SteadySeconds() - start);
  }
  return rates;
}

// What one process does; rank 0 tells the findings.
void Member(int rank, int size, const std::string& address, std::pair<int, int> listening, const Tell& tell) {
  at::set_num_threads(1);
  ResolveMathFunctions();
  if (rank != 0) close(listening.first);
  const auto store = std::make_shared<C10dStore>(
      C10dStoreOptions{.host = address,
                       .port = listening.second,
                       .host_here = rank == 0,
                       .listen_fd = rank == 0 ? std::optional(listening.first) : std::nullopt,
                       .timeout = kDeadline,
                       .stop = {}});
  const auto group = MakeGlooCommunicator(store, {.rank = rank,
                                                  .size = size,
                                                  .interface = address,
                                                  .rendezvous_timeout = kDeadline,
                                                  .collective_timeout = kDeadline});
  const auto say = [&](const Json& json) {
    if (rank == 0) tell(json.dump());
  };
  say({{"next", Format("sums of %d processes", size)}});
  const double begin = SteadySeconds();
  Exchange(*group);
  say({{"sums_seconds", (SteadySeconds() - begin) / kRepeats}});
  say({{"next", Format("rates of %d processes", size)}});
  say({{"rates", Rates(*group)}});
  say({{"next", Format("stages on %d ranks", size)}});
  const std::string difference = CompareStages(*group, [&](const std::string& way) {
    say({{"next", Format("stages on %d ranks: ", size) + way}});
  });
  say({{"difference", difference}});
  group->Barrier("selftest");  // rank 0 hosts the store
}

Finding RatesFinding(int size, const Json& rates) {
  std::vector<std::string> parts;
  for (const auto& [name, rate] : rates.items()) parts.push_back(name + " " + HumanBytes(rate.get<double>()) + "/s");
  Json numbers = {{"ranks", size}};
  for (const auto& [name, rate] : rates.items()) numbers[name + "_bytes_per_second"] = rate;
  return {"bandwidth", true,
          Format("bandwidth of %d processes, tensors of %s: ", size, HumanBytes(kBytes).c_str()) + Join(parts),
          numbers};
}

}  // namespace

int GroupSteps() { return 3 + NumComparisons(); }

Findings CheckGroup(int size, const std::string& address, const Announce& announce) {
  Findings findings;
  bool summed = false, compared = false;
  const auto hear = [&](const std::string& line) {
    const Json said = Json::parse(line);
    if (said.contains("next")) announce(said["next"].get<std::string>());
    if (said.contains("sums_seconds")) {
      summed = true;
      findings.push_back({"communication",
                          true,
                          Format("communication: %d processes on %s, sums of %zu numbers in %.1f ms", size,
                                 address.c_str(), kNumbers, said["sums_seconds"].get<double>() * 1e3),
                          {{"ranks", size}, {"sum_seconds", said["sums_seconds"]}}});
    }
    if (said.contains("rates")) findings.push_back(RatesFinding(size, said["rates"]));
    if (said.contains("difference")) {
      compared = true;
      const auto difference = said["difference"].get<std::string>();
      findings.push_back(
          {"equality",
           difference.empty(),
           difference.empty()
               ? Format("equality: ddp, zero1, zero2 and zero3 on %d ranks train to the same bits, in %d comparisons",
                        size, NumComparisons())
               : Format("equality on %d ranks: %s", size, difference.c_str()),
           {{"ranks", size}, {"comparisons", NumComparisons()}, {"difference", difference}}});
    }
  };
  std::string problem;
  try {
    const std::pair<int, int> listening = Listen("the selftest's port", address, 0);
    problem = RunGroup(
        size, kDeadline, [&](int rank, const Tell& tell) { Member(rank, size, address, listening, tell); }, hear);
    close(listening.first);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (!problem.empty()) {
    const bool equality = summed && !compared;
    findings.push_back({"communication",
                        false,
                        Format("communication: %d processes on %s%s: %s", size, address.c_str(),
                               equality ? ", in the comparison of the stages" : "", problem.c_str()),
                        {{"ranks", size}}});
  }
  return findings;
}

}  // namespace trainyard::selftest
