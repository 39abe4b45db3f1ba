// What one watch says, line by line. Knows no HTTP.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_WATCH_STREAM_H_
#define TRAINYARD_OPERATOR_LOCAL_API_WATCH_STREAM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "operator/base/clock.h"
#include "operator/local/api/memory_api.h"
#include "operator/local/api/request_options.h"
#include "operator/local/api/selector.h"

namespace trainyard::local {

class WatchStream {
 public:
  // Takes a line; false: nobody reads on.
  using Write = std::function<bool(const std::string& line)>;

  // `selector` is of `request`; `table`: each object as a table of its own. `api` and `clock` must outlive it.
  WatchStream(const MemoryApi& api, const Clock& clock, const Resource& resource, std::string ns, Selector selector,
              const WatchRequest& request, bool table);

  // Says what there is to say, and waits for half a second at most where that is nothing. `last`: it says no more than
  // what was there at its start. False: nobody reads on.
  bool Continue(const Write& write, bool last);
  // Whether all is said: its time is over, or the history no longer holds what comes next.
  bool over() const { return over_; }

 private:
  bool SendFirst(const Write& write);
  bool SendChanges(const Write& write);
  bool SendBookmarkWhenDue(const Write& write);
  bool Send(const Write& write, const kube::WatchEvent& event);
  kube::WatchEvent Bookmark() const;

  const MemoryApi& api_;
  const Clock& clock_;
  const Resource resource_;
  const std::string ns_;
  const Selector selector_;
  const bool table_, bookmarks_;
  const Time end_;
  Time last_sent_;
  std::vector<kube::WatchEvent> first_;  // what was there at the start
  uint64_t since_ = 0;                   // all up to this version is said
  bool headers_ = true, initial_bookmark_ = false, last_bookmark_ = false, over_ = false;
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_WATCH_STREAM_H_
