// Answers as they come, beside the results' place, so that a run that was stopped goes on where it was.
#pragma once

#include <fstream>
#include <map>
#include <string>

#include "tools/eval.h"

namespace coprime {

// The file `out`.partial: a line with the run's key (one_line() of its facts), then answers. An empty `out`: no file.
class PartialResults {
 public:
  // Takes up what an earlier run has left. Error(kUsage) if it was another run (by key), Error(kModel) if the file is
  // damaged (a last line that was cut short is not: it is taken off) or cannot be written.
  PartialResults(const std::string& out, const std::string& key);

  const std::string& path() const { return path_; }
  const std::map<int64_t, Answer>& known() const { return known_; }  // those that were there

  void add(const Answer& answer);
  // When `questions` are answered and written elsewhere: removes the file, unless it holds answers to later ones.
  // Returns how many.
  size_t finish(size_t questions);

 private:
  void flush();

  std::string path_;
  std::ofstream file_;
  std::map<int64_t, Answer> known_;
};

}  // namespace coprime
