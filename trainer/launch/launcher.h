// `trainyard launch`: starts the ranks of one node, watches them, and ends with the cause.
//
//   - Ranks are children in process groups of their own; only the launcher forwards a stop, and says
//     so. A second one (base/stop_signal.h) kills them. A rank that is stopped (SIGSTOP) goes on with it.
//   - Ctrl-Z (SIGTSTP) stops the ranks and then the launcher; fg and bg go on with all of them.
//   - When one rank fails the others get five seconds to end by themselves, then SIGKILL. The exit
//     code and the termination message are those of the culprit (verdict.h).
//   - A rank that SIGKILL has ended while the kernel counted a process killed for want of memory (oom_watch.h) is
//     OOMKilled.
//   - When one rank has ended with 0 the run is complete and durable. The others get 30 seconds to end as well, five
//     once a stop is asked for, then SIGKILL; the exit code is still 0. Whoever is there five seconds after SIGKILL is
//     left to the kernel.
//   - The node 0 launcher hosts the store and keeps it until every node's launcher has signed off, for five seconds at
//     most, or until a second stop. The termination message is written before.
//     That it cannot be reached is its ranks' to say, which wait for it until their deadline.
//   - Where another node's launcher has signed off, or none answers and no rank here gives a sign (it is frozen), the
//     ranks that are left after 30 seconds are killed: the exit code is 69.
//   - Every rank's output goes to run.dir/logs/attempt-A-rank-R.log, by a thread of its own (log_writer.h): a volume
//     that does not answer delays no signal. The node's first rank's goes to the terminal as well (of other ranks than
//     0 it is only what they wait for), by another thread: a terminal that takes nothing delays nothing either. What it
//     has lacked is said in that rank's log. Why a rank failed is its launcher's to
//     say, once, and stands in the rank's log as well; of several failed ranks it says the cause.
//   - Ranks are forked before the launcher has a thread, so that they can go on with what it has loaded.
// Nothing here links LibTorch: the store is made, and a rank is, through a function.
#ifndef TRAINYARD_TRAINER_LAUNCH_LAUNCHER_H_
#define TRAINYARD_TRAINER_LAUNCH_LAUNCHER_H_

#include <functional>
#include <memory>
#include <string>

#include "trainer/base/memory.h"
#include "trainer/comm/store.h"
#include "trainer/launch/oom_watch.h"
#include "trainer/launch/world.h"

namespace trainyard {

struct LaunchOptions {
  NodeWorld world;
  std::function<int()> rank;       // is one rank, in a process of its own (child.h), and returns its exit code
  std::string rank0_address;       // where this node serves: TRAINYARD_POD_IP or 127.0.0.1
  std::string store_address = {};  // where node 0 serves the store; empty: there as well
  int status_port = 0;             // 0: any free one
  std::string termination_log;     // empty: none is written
  bool quiet = false;              // leaves rank 0's output to the log
  OomWatch::Count oom_kills = OomKillCounter();  // what tells which ranks the kernel has killed
};

// Serves the store on an already listening socket (owned by the store), or connects to one that must
// be there already, in a second or so; PeerError.
struct StoreFactory {
  std::function<std::unique_ptr<Store>(int listen_fd, int port)> host;
  std::function<std::unique_ptr<Store>(const std::string& address, int port)> connect;
};

// Returns the exit code. Blocks StopSignalSet, SIGTSTP and SIGCHLD in the calling thread for good: call it
// from main, before any thread is started and any device's driver opened. A stop that is pending when it is called is
// obeyed. Throws ConfigError, PeerError (69: a port is in use), StoppedError before there are ranks.
int Launch(const LaunchOptions& options, const StoreFactory& stores);

// For node 0, when it refuses to start: hosts the store in which `say(port)` tells the other nodes' ranks so, until all
// their launchers have signed off, for ten seconds at most; whoever comes later learns it from whoever started the
// nodes. Nothing happens in a world of one node, or when the store's port is taken.
void TellOtherNodes(const LaunchOptions& options, const StoreFactory& stores, const std::function<void(int port)>& say);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_LAUNCHER_H_
