// What the API server reads of a request, and what it does not: the library would keep whatever comes, from anyone.
//
//   - Of a head, kHeadBytes: then the connection is read no further. For how long: head_deadline.h.
//   - Of a body, nothing before the head is accepted, and then kBodyBytes, however it is framed or compressed.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_REQUEST_BODY_H_
#define TRAINYARD_OPERATOR_LOCAL_API_REQUEST_BODY_H_

#include <httplib.h>
#include <openssl/types.h>

#include <string>

#include "operator/local/api/api_result.h"

namespace trainyard::local {

constexpr size_t kHeadBytes = 64 << 10, kBodyBytes = 8 << 20;

// Counts what comes in on connections of `context`. REQUIRES: each is read by a thread of its own.
void LimitHeads(SSL_CTX* context);
// The head was read: another one may follow.
void EndOfHead();
// The connection that this thread reads; -1 before its first byte.
int IncomingSocket();

// 405, 413, 415 or 501 for a head whose body ReadBody could not read.
ApiResult CheckHead(const httplib::Request& request);

// 413 when the body is longer than kBodyBytes, 400 when it does not come. REQUIRES: CheckHead let it pass.
ApiResult ReadBody(const httplib::Request& request, const httplib::ContentReader& read, std::string& body);

// Answers and closes the connection, on which the rest of the request may still come.
void AnswerAndClose(const ApiResult& result, httplib::Response& response);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_REQUEST_BODY_H_
