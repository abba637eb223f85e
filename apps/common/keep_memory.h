// SPDX-License-Identifier: MIT
// What a program can do so that large tensors cost no page faults.
#pragma once

namespace mini::app {

/// Has freed memory stay in the process (glibc's allocator). By default the memory of a large
/// tensor goes back to the system when the tensor goes, and the next one takes it again page by
/// page: a tenth of the time of training a small GPT.
void keep_freed_memory();

}  // namespace mini::app
