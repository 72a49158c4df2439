package controller

// room makes room for what a pass renders; false if there is none, and the pass has to be made later.
func (m *memo) room(size int64) bool {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	if m.working+size > smallWork {
		total := size
		for _, working := range m.all.working {
			total += working
		}
		if total > maxWorking || m.all.working[m.namespace]+size > maxWorking/2 {
			return false
		}
	}
	m.take(size)
	return true
}

// take counts what a pass has in memory.
func (m *memo) take(size int64) {
	if m.all.working == nil {
		m.all.working = map[string]int64{}
	}
	m.working += size
	m.all.working[m.namespace] += size
}

// resumed counts a run that was kept, and therefore has its room.
func (m *memo) resumed(size int64) {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	m.take(size)
}

// rest ends a pass: what it had is in memory no longer, or kept.
func (m *memo) rest() {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	if m.working == 0 {
		return // and maybe nothing was ever counted
	}
	if m.all.working[m.namespace] -= m.working; m.all.working[m.namespace] == 0 {
		delete(m.all.working, m.namespace)
	}
	m.working = 0
}
