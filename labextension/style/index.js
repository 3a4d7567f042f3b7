import './base.css';
import './approvals.css';
import './access.css';
import './view.css';
import './history.css';
