// GPT-2 (Radford et al., 2019), with the names and initialisation of Hugging Face's GPT2LMHeadModel.
//
// Legend: B batch, T positions, D width, V vocabulary.
#ifndef TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_GPT2_H_
#define TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_GPT2_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trainer/model/layers.h"
#include "trainer/task/language_model/options.h"
#include "trainer/task/work.h"

namespace trainyard::lm {

// Of a window of `context` tokens: N is every parameter but the positions, which are only added; the tokens' table
// counts once, as the head.
SampleWork WorkOf(const ModelShape& shape);

// transformers' GPT2Config of the model, for from_pretrained (JSON).
std::string ConfigOf(const ModelShape& shape);

// A linear layer whose weight lies as (inputs, outputs). Names: weight, bias (outputs), zero at the start.
struct Conv1D {
  Conv1D(const Scope& s, int64_t inputs, int64_t outputs, double deviation);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;
  ParameterId weight, bias;
};

// One pre-norm layer.
struct Block {
  Block(const Scope& s, const ModelShape& shape);
  at::Tensor operator()(const Pass& pass, const at::Tensor& x) const;  // (B, T, D) -> (B, T, D)

  UnitId unit;
  int64_t heads;
  LayerNorm norm1, norm2;
  Conv1D qkv, out, up, down;
  Dropout attention_dropout, attended_dropout, output_dropout;
};

// Immutable.
class Gpt2 {
 public:
  Gpt2(const Scope& s, const ModelShape& shape);
  // The sum of the losses of the tokens that follow, in nats: a float32 scalar. Logits are made in the type that the
  // pass computes in. tokens, targets: (B, T) int64, T at most the context; a target that is `ignored` counts nothing.
  at::Tensor SumOfLosses(const Pass& pass, const at::Tensor& tokens, const at::Tensor& targets, int64_t ignored) const;

 private:
  Scope ends_;  // the unit of embeddings, last norm and head
  Embedding tokens_, positions_;
  Dropout dropout_;
  LayerNorm norm_;
  std::vector<Block> blocks_;
};

}  // namespace trainyard::lm

#endif  // TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_GPT2_H_
