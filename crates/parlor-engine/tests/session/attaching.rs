//! Clients that attach, fall behind and catch up.

use parlor_dialect::Dialect::{V1, V2};
use parlor_engine::ReplayFrom;

use crate::stage::{Stage, attaches};

#[test]
fn a_client_that_attaches_again_before_its_first_response_gets_both_responses() {
    for dialect in [V1, V2] {
        for again in [ReplayFrom::Now, ReplayFrom::Start] {
            let mut stage = Stage::new(V2);
            let first = attaches(1, dialect, 1, ReplayFrom::New);
            let second = attaches(1, dialect, 2, again);
            stage.happens([first, second]);
            assert_eq!(stage.responses(1), ["1", "2"]);
        }
    }
}
