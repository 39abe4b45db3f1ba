// c10d's TCPStore behind the Store interface. Interoperates with torchrun and Python's c10d.
#ifndef TRAINYARD_TRAINER_COMM_C10D_STORE_H_
#define TRAINYARD_TRAINER_COMM_C10D_STORE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainer/comm/errands.h"
#include "trainer/comm/store.h"

namespace trainyard {

struct C10dStoreOptions {
  std::string host;
  int port = 0;
  bool host_here = false;        // serve the store from this process
  std::optional<int> listen_fd;  // with host_here: an already listening socket; owned by the store
  std::chrono::duration<double> timeout{300};
  std::function<bool()> stop;  // asked while connecting; StoppedError when it returns true
  // How long a call waits for the host. Long enough for a connection that loses packets for a while; a host that is
  // frozen keeps its connections, and nobody else says so.
  std::chrono::duration<double> answer{30};
};

// PeerError also when the host does not answer; once it answers again, so does this.
class C10dStore : public Store {
 public:
  // Connects, retrying until the deadline. Throws PeerError naming the address.
  explicit C10dStore(const C10dStoreOptions& options);
  ~C10dStore() override;
  void Set(const std::string& key, const std::string& value) override;
  std::optional<std::string> Get(const std::string& key) override;
  int64_t Add(const std::string& key, int64_t amount) override;
  void Delete(const std::string& key) override;

  int port() const;

  // c10d's own store. Lives as long as this.
  struct Native;
  const Native& native() const { return *native_; }

 private:
  // What `call(store)` returns.
  template <class F>
  auto Ask(F call);

  const std::chrono::duration<double> patience_;
  std::shared_ptr<Native> native_;  // the errands' as well
  Errands errands_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_C10D_STORE_H_
