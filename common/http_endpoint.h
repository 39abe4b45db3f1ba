// A small HTTP server for what is the same for everyone: metrics, probes, a status.
#ifndef TRAINYARD_COMMON_HTTP_ENDPOINT_H_
#define TRAINYARD_COMMON_HTTP_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>

namespace trainyard {

struct HttpAnswer {
  int code = 200;  // 200, 404 or 503
  std::string type = "text/plain";
  std::string body;
};

// Anyone may connect: so one thread of its own that never waits for a client, at most 128 connections (the oldest makes
// way for the newest), 8 KiB of a request, five seconds for a whole exchange, and one request per connection.
class HttpEndpoint {
 public:
  // `answer` is asked with the path of each GET, without its query, from the endpoint's thread; what it throws is
  // answered with 500. `listening` is a socket that listens; it is closed at the end. Throws std::system_error, with
  // `listening` closed, where no descriptor or no thread is left.
  HttpEndpoint(int listening, std::function<HttpAnswer(const std::string& path)> answer);
  // Ends at once; exchanges that are under way are cut.
  ~HttpEndpoint();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard

#endif  // TRAINYARD_COMMON_HTTP_ENDPOINT_H_
