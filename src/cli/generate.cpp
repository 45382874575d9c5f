// coprime generate: streams a continuation, then a table or one JSON object.

#include <unistd.h>

#include <cstdio>
#include <random>

#include "base/clock.h"
#include "base/error.h"
#include "cli/chat_input.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/prompt_progress.h"
#include "cli/report.h"
#include "cli/text_input.h"
#include "cli/trace_output.h"
#include "engine/generation.h"
#include "engine/generation_config.h"
#include "engine/stop_matcher.h"
#include "tokenizer/tokenizer.h"

namespace coprime {
namespace {

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const std::string& model,
                                   const GenerateSettings& settings) {
  if (settings.chat.given()) {
    const ChatTemplate chat = ChatTemplate::open(model);
    const RenderedChat rendered = render_chat(chat, settings.chat);
    return tokenizer.encode(rendered.text, rendered.foreign, rendered.structure);
  }
  if (!settings.chat.options.empty())
    fail(ErrorKind::kUsage, "--chat-options goes with --chat or --messages: there is no template here");
  const std::string text = settings.prompt ? *settings.prompt : read_text_input(*settings.prompt_file);
  if (text.empty()) fail(ErrorKind::kUsage, "the prompt is empty: give at least one character");
  return tokenizer.encode(text, true);
}

SamplingOptions sampling_options(const GenerateSettings& settings, const GenerationConfig& config) {
  SamplingOptions sampling = config.sampling;
  sampling.temperature = settings.temperature.value_or(sampling.temperature);
  sampling.top_k = settings.top_k.value_or(sampling.top_k);
  sampling.top_p = settings.top_p.value_or(sampling.top_p);
  sampling.min_p = settings.min_p.value_or(sampling.min_p);
  sampling.seed = settings.seed ? *settings.seed : (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  return sampling;
}

// Every id of generation_config.json, and the tokenizer's.
std::vector<int32_t> end_ids(const GenerationConfig& config, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = config.eos;
  for (int32_t id : tokenizer.eos_ids()) ids.push_back(id);
  return ids;
}

// Memory for the text that may come, and no more than the model's positions.
int64_t context_tokens(int64_t prompt, int64_t max_tokens, int64_t max_positions) {
  if (prompt >= max_positions) {
    fail(ErrorKind::kUsage,
         "the prompt has {} tokens, and the model's context holds {} with at least one to come: shorten it", prompt,
         max_positions);
  }
  return max_tokens == 0 || max_tokens > max_positions - prompt ? max_positions : prompt + max_tokens;
}

}  // namespace

void run_generate(const WorldSettings& world, const GenerateSettings& settings) {
  const int64_t begin_us = now_us();
  WorldOptions options = world.options();
  const ModelShape shape = read_model_shape(options.model);
  const ShardPlan plan(shape, options.plan);  // a wrong plan is told before anything is read
  const Tokenizer tokenizer = Tokenizer::open(options.model);
  const GenerationConfig config = read_generation_config(options.model);

  GenerationRequest request{.prompt = encode_prompt(tokenizer, world.model, settings),
                            .sampling = sampling_options(settings, config),
                            .eos = end_ids(config, tokenizer)};
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  options.context = context_tokens(prompt, settings.max_tokens, shape.max_positions);
  options.max_rows = static_cast<int>(std::min<int64_t>(options.max_rows, prompt));
  request.max_tokens = options.context - prompt;
  const TraceOutput trace(settings.trace, world.model);
  request.trace = trace.wanted();
  if (request.eos.empty())
    print_report("the model names no token that ends a text: it goes on to --max-tokens or the end of the context");
  Front front(options);
  const int64_t start_us = now_us() - begin_us;
  PromptProgress progress(terminal_write(), now_us());
  request.read = [&](int64_t tokens) { progress.read(tokens, prompt, now_us()); };

  std::string text;
  Utf8Stream utf8;
  StopMatcher stops(settings.stops);
  const auto give = [&](const std::string& piece) {
    text += piece;
    if (!settings.json) print(piece);
  };
  Generation generation = generate(front, request, [&](int32_t id) {
    if (!tokenizer.is_special(id)) give(stops.push(utf8.push(tokenizer.bytes(id))));
    return !stops.stopped();
  });
  give(stops.push(utf8.finish()));
  give(stops.finish());

  const GenerateReport report{front, generation, request, text, start_us};
  print(settings.json ? report.json() + "\n" : "\n");
  trace.write(front, generation.traces);
  if (settings.stats) std::fputs(report.table().c_str(), stderr);
}

}  // namespace coprime
