/** @file The command `eval`: loss and accuracy of a checkpoint on test samples, on any number of ranks. */
#ifndef DDP_EVAL_COMMAND_H_
#define DDP_EVAL_COMMAND_H_

int ddp_eval_command(int argc, char **argv);

#endif
