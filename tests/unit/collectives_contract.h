// What every implementation of collectives.h must do, as bodies that each rank of a world runs in a thread.
#ifndef TRAINYARD_TESTS_UNIT_COLLECTIVES_CONTRACT_H_
#define TRAINYARD_TESTS_UNIT_COLLECTIVES_CONTRACT_H_

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "trainer/comm/collectives.h"

namespace trainyard::contract {

// `settle`: the host waits for what was enqueued, where Wait does not.
using Settle = std::function<void()>;

inline at::TensorOptions On(at::Device device, at::ScalarType type) { return at::TensorOptions(type).device(device); }

inline void SumsGathersAndBroadcasts(Collectives& c, const Settle& settle, at::Device device = at::kCPU) {
  at::Tensor x = at::full({5}, c.rank() + 1.0, On(device, at::kFloat)),
             gathered = at::empty({c.size() * 3}, On(device, at::kLong)),
             mine = at::full({3}, c.rank(), On(device, at::kLong));
  at::Tensor shared = at::full({2}, c.rank(), On(device, at::kFloat));
  const auto sum = c.AllReduce(x, "x");
  const auto gather = c.AllGather(mine, gathered, "ids");
  c.Wait(c.Broadcast(shared, c.size() - 1, "weights"));
  c.Wait(sum);
  c.Wait(gather);
  settle();
  EXPECT_EQ(x[4].item<float>(), static_cast<float>(c.size() * (c.size() + 1)) / 2);
  for (int64_t i = 0; i < gathered.numel(); ++i) EXPECT_EQ(gathered[i].item<int64_t>(), i / 3);
  EXPECT_EQ(shared[1].item<float>(), static_cast<float>(c.size() - 1));
}

// What rank r gives: small whole numbers, so that every type sums them without rounding.
inline at::Tensor Given(int64_t n, int rank, const at::TensorOptions& options) {
  return (at::arange(n, at::kLong) * (rank + 3) % 101 - 20 * rank).to(options);
}

// From one value to several chunks for each rank, in every type that has a sum, shared evenly or not.
inline void AnySizeAndTypeIsSummedAndSharedOut(Collectives& c, const Settle& settle, at::Device device = at::kCPU) {
  for (const int64_t n : {1, 2, 7, 2048, 4099, 300'001, 1'500'000}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong}) {
      SCOPED_TRACE(testing::Message() << n << " of " << c10::toString(type));
      at::Tensor sum = Given(n, 0, On(device, type));
      for (int rank = 1; rank < c.size(); ++rank) sum += Given(n, rank, On(device, type));
      at::Tensor x = Given(n, c.rank(), On(device, type));
      c.Wait(c.AllReduce(x, "x"));
      settle();
      EXPECT_TRUE(x.equal(sum));
      const int64_t share = n / c.size();
      const at::Tensor whole = Given(n, c.rank(), On(device, type)).narrow(0, 0, share * c.size());
      const at::Tensor mine = whole.narrow(0, share * c.rank(), share), apart = at::empty({share}, On(device, type));
      c.Wait(c.ReduceScatter(whole.clone(), apart, "apart"));
      c.Wait(c.ReduceScatter(whole, mine, "in place"));
      settle();
      EXPECT_TRUE(mine.equal(sum.narrow(0, share * c.rank(), share)));
      EXPECT_TRUE(apart.equal(mine));
      c.Wait(c.AllGather(mine, whole, "in place"));
      settle();
      EXPECT_TRUE(whole.equal(sum.narrow(0, 0, share * c.size())));
    }
  }
}

// A result is there in the order in which collectives were asked for, and a ticket that was waited for is done.
inline void CollectivesEndInTheirOrder(Collectives& c, const Settle& settle, at::Device device = at::kCPU) {
  std::vector<at::Tensor> sums;
  std::vector<Collectives::Ticket> tickets;
  for (int i = 0; i < 20; ++i) {
    sums.push_back(at::full({i + 1}, i + c.rank(), On(device, at::kFloat)));
    tickets.push_back(c.AllReduce(sums.back(), "sum"));
  }
  c.Wait(tickets.back());
  settle();
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(c.Done(tickets[static_cast<size_t>(i)]));
    EXPECT_EQ(sums[static_cast<size_t>(i)][i].item<float>(),
              static_cast<float>(c.size() * i + c.size() * (c.size() - 1) / 2));
  }
}

}  // namespace trainyard::contract

#endif  // TRAINYARD_TESTS_UNIT_COLLECTIVES_CONTRACT_H_
