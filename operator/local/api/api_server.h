// The in-memory API over HTTPS, on loopback: what kubectl and the operator talk to.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_API_SERVER_H_
#define TRAINYARD_OPERATOR_LOCAL_API_API_SERVER_H_

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "operator/local/api/memory_api.h"
#include "operator/local/api/tls.h"

namespace trainyard::local {

class ApiServer {
 public:
  // `log_path`: where a container's log lies. All references must outlive it.
  ApiServer(MemoryApi& api, const Clock& clock, Certificate certificate, std::string token,
            std::function<std::filesystem::path(const Json& pod, const std::string& container)> log_path);
  ~ApiServer();

  // Listens on 127.0.0.1. `port` 0: any free one. kUnavailable when it is in use.
  Status Start(int port);
  // Ends every connection.
  void Stop();
  int port() const;

 private:
  struct Impl;
  Status FirstRequest();
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_API_SERVER_H_
