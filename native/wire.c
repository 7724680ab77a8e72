/* Chakra wire format: scanning and writing of length-prefixed protobuf messages. */
