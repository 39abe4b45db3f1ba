# The tasks' sources. Of each, what links no LibTorch (fields, readers, synthetic data) is a library;
# the rest is part of `task`.
set(AD task/algorithm_distillation)
trainyard_library(dark_room
  SOURCES ${AD}/dark_room.cc ${AD}/histories.cc ${AD}/options.cc ${AD}/play_returns.cc ${AD}/ppo_source.cc ${AD}/synth.cc ${AD}/tabular_sources.cc ${AD}/windows.cc
  PUBLIC base config data nlohmann_json::nlohmann_json)
set_source_files_properties(${AD}/ppo_source.cc PROPERTIES COMPILE_OPTIONS "-O3;-fopenmp-simd;-fno-math-errno")

set(LM task/language_model)
trainyard_library(tokens
  SOURCES ${LM}/corpus.cc ${LM}/markov_source.cc ${LM}/options.cc ${LM}/synth.cc ${LM}/token_file.cc
  PUBLIC base config nlohmann_json::nlohmann_json)

set(MS task/mace_survival)
trainyard_library(survival
  SOURCES ${MS}/cox.cc ${MS}/event_order.cc ${MS}/survival_metrics.cc
  PUBLIC base nlohmann_json::nlohmann_json)
trainyard_library(cohort
  SOURCES ${MS}/cohort.cc ${MS}/fold_scores.cc ${MS}/follow_up.cc ${MS}/lesion_features.cc ${MS}/options.cc ${MS}/phantom.cc ${MS}/synth.cc ${MS}/volumes.cc
  PUBLIC survival config data)
# The same bytes on every machine: no product is added without rounding it first.
set_source_files_properties(${MS}/follow_up.cc ${MS}/lesion_features.cc ${MS}/phantom.cc PROPERTIES COMPILE_OPTIONS "-ffp-contract=off")

set(HVC task/hybrid_vit_cascade)
trainyard_library(thorax
  SOURCES ${HVC}/options.cc ${HVC}/patients.cc ${HVC}/phantom.cc ${HVC}/radiograph.cc ${HVC}/synth.cc
  PUBLIC base config data nlohmann_json::nlohmann_json)
# The same bits on every machine: where a processor can multiply and add at once, it must not.
set_source_files_properties(${HVC}/phantom.cc ${HVC}/radiograph.cc PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=off")

set(TASK_LIBRARIES dark_room thorax tokens cohort)
set(TASK_SOURCES
  ${LM}/gpt2.cc ${LM}/language_batch.cc ${LM}/language_task.cc ${LM}/loss_evaluation.cc
  ${AD}/distillation_batch.cc ${AD}/distillation_evaluation.cc ${AD}/distillation_task.cc ${AD}/in_context.cc ${AD}/in_context_evaluation.cc
  ${AD}/transformer.cc
  ${HVC}/cascade_data.cc ${HVC}/cascade_evaluation.cc ${HVC}/cascade_loss.cc ${HVC}/cascade_model.cc ${HVC}/cascade_task.cc
  ${HVC}/diffusion.cc ${HVC}/image_metrics.cc ${HVC}/projector.cc
  ${MS}/cox_function.cc ${MS}/mace_task.cc ${MS}/resnet3d.cc ${MS}/risk_model.cc ${MS}/survival_batch.cc ${MS}/survival_evaluation.cc)
