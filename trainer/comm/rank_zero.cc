#include "trainer/comm/rank_zero.h"

#include <exception>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/comm/fail_together.h"

namespace trainyard {

RankZero::RankZero(std::shared_ptr<Store> store, ControlPlane& control, LifeOptions life)
    : store_(std::make_shared<PrefixStore>(std::move(store), "rank-zero/")),
      control_(control),
      signs_(store_, control.rank(), {}, std::move(life)) {}

void RankZero::Do(const std::string& what, const std::function<void(const Tick&)>& work,
                  const std::function<void()>& help) {
  const std::string key = "over";
  std::exception_ptr error;
  if (control_.rank() == 0) {
    try {
      work([this] { signs_.Beat(); });
    } catch (...) {
      error = std::current_exception();
    }
    try {
      store_->Set(key, "");
    } catch (const PeerError&) {  // Then nobody waits there either.
      if (error) std::rethrow_exception(error);
      throw;
    }
  } else {
    if (help) help();
    signs_.Wait(key, 0, what);
  }
  FailTogether(control_, error, what);
  if (control_.rank() == 0) store_->Delete(key);
  control_.Barrier(what);  // or the next Do would find this one's key
}

}  // namespace trainyard
