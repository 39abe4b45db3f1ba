// Loopback addresses for the pods of one agent: two runs on one machine must not bind the same ones.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_ADDRESS_BLOCK_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_ADDRESS_BLOCK_H_

namespace trainyard::local {

// 127.N.0.0/16 with a random N from kFirstBlock to kLastBlock that no other living AddressBlock of this network
// namespace has, whoever runs it; N is shared where none can be held, since all are or the system refuses. Free again
// when the object, or its process, ends.
inline constexpr int kFirstBlock = 2, kLastBlock = 250;

class AddressBlock {
 public:
  AddressBlock();
  ~AddressBlock();
  AddressBlock(const AddressBlock&) = delete;
  AddressBlock& operator=(const AddressBlock&) = delete;
  int number() const { return number_; }

 private:
  int number_, held_ = -1;
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_ADDRESS_BLOCK_H_
