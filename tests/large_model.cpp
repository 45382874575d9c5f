#include "large_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace coprime {

void write_large_model(const std::filesystem::path& directory) {
  std::ofstream(directory / "config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 9, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 16000, "max_position_embeddings": 512,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true})";
  std::string header = "{";
  int64_t offset = 0;
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
    const int64_t bytes = rows * std::max<int64_t>(columns, 1) * 2;
    const std::string shape = columns == 0 ? fmt::format("[{}]", rows) : fmt::format("[{},{}]", rows, columns);
    header += fmt::format("{}\"{}\":{{\"dtype\":\"BF16\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", name, shape, offset, offset + bytes);
    offset += bytes;
  };
  add("model.embed_tokens.weight", 16000, 1024);
  add("model.norm.weight", 1024, 0);
  for (int layer = 0; layer < 9; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    add(prefix + "input_layernorm.weight", 1024, 0);
    add(prefix + "post_attention_layernorm.weight", 1024, 0);
    add(prefix + "self_attn.q_proj.weight", 1024, 1024);
    add(prefix + "self_attn.k_proj.weight", 256, 1024);
    add(prefix + "self_attn.v_proj.weight", 256, 1024);
    add(prefix + "self_attn.o_proj.weight", 1024, 1024);
    add(prefix + "mlp.gate_proj.weight", 4096, 1024);
    add(prefix + "mlp.up_proj.weight", 4096, 1024);
    add(prefix + "mlp.down_proj.weight", 1024, 4096);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::ofstream file(directory / "model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << header;
  file.close();
  std::filesystem::resize_file(directory / "model.safetensors", 8 + length + static_cast<uint64_t>(offset));
}

int64_t anonymous_bytes(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

int64_t read_bytes(pid_t pid) {
  std::ifstream io(fmt::format("/proc/{}/io", pid));
  for (std::string line; std::getline(io, line);) {
    if (line.starts_with("rchar: ")) return std::stoll(line.substr(7));
  }
  return 0;
}

}  // namespace coprime
