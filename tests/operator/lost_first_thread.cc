// A program whose first thread ends and whose second one goes on, in a session of its own: /proc says of it that it has
// ended (Z), and shows no environment. SessionTest starts it.
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

int main() {
  setsid();
  std::thread([] { sleep(600); }).detach();
  syscall(SYS_exit, 0);  // of this thread alone
}
