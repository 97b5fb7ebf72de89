// Numbers that a block of the C51 head's update leaves, c51_block_parts [blocks, 4].
#pragma once

#define PART_TOP 0       // largest mean target before clipping
#define PART_LOW 1       // least
#define PART_CLIPPED 2   // sum over its rows and pairs of the mass outside the span
#define PART_BAD 3       // how many of its sums are not finite
