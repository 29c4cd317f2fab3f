//! Reorders items in place: a run's messages are a large part of the memory that reading it takes.

/// The items of these places, in this order; without a second copy of them when they are all there.
pub fn gathered<T: Copy>(mut items: Vec<T>, order: &[u32]) -> Vec<T> {
    if order.len() != items.len() {
        return order.iter().map(|&i| items[i as usize]).collect();
    }
    // Cycle by cycle: each place takes its item, whose place is the next to be filled.
    let mut done = vec![false; items.len()];
    for start in 0..items.len() {
        if done[start] {
            continue;
        }
        let (first, mut at) = (items[start], start);
        loop {
            done[at] = true;
            let from = order[at] as usize;
            if from == start {
                items[at] = first;
                break;
            }
            items[at] = items[from];
            at = from;
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_place_has_its_item(keys in prop::collection::vec(any::<u8>(), 0..200), some in any::<bool>()) {
            let mut order: Vec<u32> = (0..keys.len() as u32).collect();
            order.sort_by_key(|&i| keys[i as usize]);
            if some {
                order.retain(|i| i % 3 != 0);
            }
            let expected: Vec<u8> = order.iter().map(|&i| keys[i as usize]).collect();
            prop_assert_eq!(gathered(keys, &order), expected);
        }
    }
}
