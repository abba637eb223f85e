#include <malloc.h>
#include <mini/checkpoint.h>
#include <mini/data_parallel.h>
#include <mini/gpt.h>
#include <mini/optimizer.h>
#include <mini/schedule.h>
#include <mini/text.h>
#include <mini/tokenizer.h>
#include <torch/torch.h>

#include <iostream>

constexpr int64_t kBatch = 8, kBlock = 32, kSteps = 100;

// Trains a small GPT on a text file and saves it: train_loop FILE
int main(int, char** argv) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);  // keep freed memory in the process
  mallopt(M_TRIM_THRESHOLD, 1 << 30);

  const mini::TextFile file(argv[1]);
  const auto tokenizer = mini::Tokenizer::characters(file.text());
  const auto tokens = mini::split_tokens(tokenizer.encode(file.text()));
  mini::RandomWindows windows(tokens.train, kBatch, kBlock, /*seed=*/1);

  mini::GPTOptions sizes(tokenizer.vocab_size());
  mini::GPT model(sizes.block_size(kBlock).n_layer(2).n_embd(64).seed(1));
  const auto adamw = torch::optim::AdamWOptions(3e-3).weight_decay(0.1);
  mini::AdamW optimizer(mini::decay_groups(*model, adamw), adamw);
  mini::LearningRateSchedule schedule(optimizer, {.warmup_steps = 10, .decay_end = kSteps});

  mini::TrainingState state;
  while (state.step < kSteps) {
    const mini::Batch batch = windows.next();  // (B, T)
    const auto loss_of = [&](int64_t begin, int64_t end) {
      const double share = static_cast<double>(end - begin) / kBatch;
      return share *
             model->loss(batch.inputs.slice(0, begin, end), batch.targets.slice(0, begin, end));
    };
    optimizer.zero_grad();
    const auto loss = mini::data_parallel_backward(model->parameters(), kBatch, loss_of);
    torch::nn::utils::clip_grad_norm_(model->parameters(), /*max_norm=*/1.0);
    optimizer.step();
    schedule.step();
    if (++state.step % 50 == 0) {
      std::cout << "step " << state.step << ": loss " << loss.item<double>() << '\n';
    }
  }
  mini::save_checkpoint("checkpoint", *model, optimizer, state);
}
