/** @file Which build of the program this is. */
#ifndef DDP_BUILD_H_
#define DDP_BUILD_H_

#define DDP_BUILD_TEXT 64

/** "0.1.0 (a hash of the program's file)": equal text, equal program; shared libraries are not in it. Not
 * collective. */
void ddp_build_text(char text[DDP_BUILD_TEXT]);

#endif
