# SPDX-License-Identifier: Apache-2.0
# The interfaces of Cap'n Proto's test.
@0xb0f4f0a5d1c7e301;

interface Listener {
  told @0 (number :Int32, data :Data) -> (sum :UInt32);
}

interface Calls {
  echo @0 (text :Text) -> (text :Text);
  echoData @1 (data :Data) -> (data :Data);
  refuse @2 (why :Text);
  tell @3 (who :Listener, times :Int32) -> (sum :UInt32);
  other @4 (prefix :Text) -> (calls :Calls);
  never @5 ();
  given @6 () -> (count :Int32);
  quit @7 ();
}
