#include "tests/device/staged_collectives.h"

#include <ATen/ops/empty.h>

#include <deque>
#include <utility>

namespace trainyard {
namespace {

class StagedCollectives : public Collectives {
 public:
  explicit StagedCollectives(std::unique_ptr<Collectives> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Ticket AllReduce(at::Tensor x, std::string unit) override {
    const at::Tensor here = x.cpu();
    return Keep(inner_->AllReduce(here, std::move(unit)), here, x);
  }
  Ticket ReduceScatter(at::Tensor in, at::Tensor out, std::string unit) override {
    const at::Tensor from = in.cpu(), here = at::empty(out.sizes(), out.scalar_type());
    return Keep(inner_->ReduceScatter(from, here, std::move(unit)), here, out);
  }
  Ticket AllGather(at::Tensor in, at::Tensor out, std::string unit) override {
    const at::Tensor from = in.cpu(), here = at::empty(out.sizes(), out.scalar_type());
    return Keep(inner_->AllGather(from, here, std::move(unit)), here, out);
  }
  Ticket Broadcast(at::Tensor x, int root, std::string unit) override {
    const at::Tensor here = x.cpu();
    return Keep(inner_->Broadcast(here, root, std::move(unit)), here, x);
  }
  void Wait(Ticket ticket) override {
    inner_->Wait(ticket);
    for (; !results_.empty() && results_.front().ticket <= ticket; results_.pop_front())
      results_.front().there.copy_(results_.front().here);
  }
  bool Done(Ticket ticket) override { return inner_->Done(ticket); }
  void ThrowIfFailed() override { inner_->ThrowIfFailed(); }

 private:
  struct Result {
    Ticket ticket;
    at::Tensor here, there;
  };
  Ticket Keep(Ticket ticket, const at::Tensor& here, const at::Tensor& there) {
    results_.push_back({ticket, here, there.variable_data()});
    return ticket;
  }
  std::unique_ptr<Collectives> inner_;
  std::deque<Result> results_;
};

}  // namespace

std::unique_ptr<Collectives> MakeStagedCollectives(std::unique_ptr<Collectives> inner) {
  return std::make_unique<StagedCollectives>(std::move(inner));
}

}  // namespace trainyard
